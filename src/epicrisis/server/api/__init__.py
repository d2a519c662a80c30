"""The interfaces for other programs: /api/v1, OpenAI's, and the Model Context Protocol"""
