"""Export the records of a FHIR server: SMART Backend Services, Bulk Data, and searches where there is no export."""
