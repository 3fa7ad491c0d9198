"""Telephone numbers, IP addresses and social security numbers: what they look like in text.

No check digit tells these from other numbers. So only the forms count that people write them in, and what stands around
them decides: a version, a date or a part of a longer number is none.
"""

import ipaddress
import re

MARKS = {"PHONE": "PHONE", "PHONE_US": "PHONE", "SSN": "SSN", "IPV4": "IP", "IPV6": "IP"}
"""Group of `PERSONAL` → what stands where it stood."""
_BEFORE = r"(?<![\w.,:+-])"
_AFTER = r"(?![\w-]|[.,:]\d)"
# ITU-T E.164: a plus, and 8 to 15 digits in groups.
_PHONE = r"\+[1-9](?=(?:[ ()./-]{0,2}\d){7,14}(?!\d))(?:[ ()./-]{0,2}\d){7,14}"
# The North American Numbering Plan: area and exchange begin with 2 to 9.
_PHONE_US = r"(?:\([2-9]\d\d\)[ /-]?|[2-9]\d\d[/-])[2-9]\d\d[ /-]\d{4}"
# Without numbers that the Social Security Administration never assigns.
_SSN = r"(?!000|666|9)\d{3}(?P<dash>[/-])(?!00)\d\d(?P=dash)(?!0000)\d{4}"
_IPV4 = r"(?<![vV])\d{1,3}(?:\.\d{1,3}){3}"
_IPV6 = r"(?=(?:[0-9a-fA-F]{1,4}:){5}|[0-9a-fA-F:]{1,24}::)[0-9a-fA-F]{1,4}:(?:[0-9a-fA-F]{0,4}:){1,6}[0-9a-fA-F]{1,4}"
PERSONAL = re.compile(
    rf"{_BEFORE}(?:(?P<PHONE>{_PHONE}){_AFTER}|(?P<PHONE_US>{_PHONE_US}){_AFTER}|(?P<SSN>{_SSN}){_AFTER}"
    rf"|(?P<IPV4>{_IPV4})(?![\w-]|\.\d)|(?P<IPV6>{_IPV6})(?![\w:-]))",
    re.ASCII,
)
MAY_BE_PERSONAL = re.compile(r"[+:\d](?:(?<=\+)[1-9]|(?<=:)[0-9a-fA-F]{0,4}:|(?<=\d)[)./-] ?\d)", re.ASCII)
"""In each of them; a text is searched for it in a fifth of the time."""
_HEXTETS = 4
"""Groups of an IPv6 address that is shortened; with fewer it may be a time or a name in code."""


def is_address(text: str) -> bool:
    """Is this the IP address of somebody? Loopback, unspecified and multicast ones are not personal."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        return False
    if address.version == 6:
        return len([part for part in text.split(":") if part]) >= _HEXTETS
    sizes = sorted(map(len, text.split(".")))
    return sizes[-1] == 3 or sizes[-2] == 2  # the others are versions, more often than not
