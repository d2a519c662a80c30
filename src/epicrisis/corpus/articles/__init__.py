"""Articles of literature databases: JATS, PubMed, MedCPT and MedRAG, and their retractions"""
