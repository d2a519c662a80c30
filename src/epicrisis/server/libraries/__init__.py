"""Open libraries, who may read them, and questions to them"""
