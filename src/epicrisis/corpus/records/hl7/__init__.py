"""HL7 v2 messages: results (ORU), documents (MDM) and stays (ADT)."""
