"""Single documents: PDF, Office, HTML, LaTeX"""
