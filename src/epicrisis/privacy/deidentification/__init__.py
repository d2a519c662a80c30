"""De-identification: find identifiers of people in notes, replace them by stable surrogates, and restore them."""
