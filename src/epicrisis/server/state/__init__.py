"""What the server keeps, in its folder or in PostgreSQL: users, sessions, access log, answers, jobs"""
