"""Patient records: notes, FHIR, C-CDA, HL7 v2, OMOP and MIMIC"""
