"""Values that all parts speak: documents, answers, errors, protocols, dates, quantities and facts."""
