"""The public suite is no test module by its name, so its asserts are told apart only when asked for."""

import pytest

pytest.register_assert_rewrite("embedbk.transports.conformance")
