import pytest

from learnloop_common.untrusted_text import interval


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.694, 0.6, 0.78), "0.694 [0.600, 0.780]"),
        ((0.0, 0.0, 0.0), "0.000 [0.000, 0.000]"),
        ((8.25, 7.5, 9.0), "8.25 [7.50, 9.00]"),
        ((487.2, 481.0, 492.1), "487.2 [481.0, 492.1]"),
        ((-0.4, -12.0, 3.0), "-0.4 [-12.0, 3.0]"),
    ],
)
def test_an_interval_has_the_decimals_that_its_size_needs(values: tuple[float, float, float], text: str) -> None:
    assert interval(*values) == text
