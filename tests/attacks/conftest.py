from tests.cli.conftest import call, call_for_records  # noqa: F401
