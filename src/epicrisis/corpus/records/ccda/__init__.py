"""Clinical documents in XML (C-CDA): narrative text of sections, and facts of coded entries."""
