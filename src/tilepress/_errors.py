"""What an error says, for people."""


def words(error: Exception) -> str:
    """Its text, without the number that a system's error has."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
