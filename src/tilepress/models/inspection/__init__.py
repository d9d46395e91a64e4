"""What a model's files say of themselves, read from their headers, without torch."""
