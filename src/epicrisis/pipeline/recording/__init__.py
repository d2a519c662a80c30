"""Many questions answered one after another, each answer recorded when it comes."""
