"""What readers of several formats share: encodings, markup, tables, identifiers, chunking"""
