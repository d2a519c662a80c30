"""What goes on in the background: jobs and imports of uploads"""
