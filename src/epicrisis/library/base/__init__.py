"""What all parts of a library share: its manifest, tables of passages, errors of engines, names of people"""
