"""Check digits: is this run of digits a payment card, is that run of letters and digits a bank account?"""

from learnloop_common.redaction.rules import SEPARATORS

CARD_DIGITS = range(13, 20)  # ISO/IEC 7812-1
# How the digits stand on a card where not by fours: American Express, Diners Club, Maestro, UATP, old Visa.
_LAYOUTS = {(4, 6, 5), (4, 6, 4), (4, 4, 5), (4, 5, 6), (4, 3, 3, 3), (8, 8)}
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 "
    "EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 "
    "JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 "
    "NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 "
    "TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}  # the registry of ISO 13616


def luhn(digits: str) -> bool:
    """Do the digits pass the check of ISO/IEC 7812-1, annex B?"""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def cards(text: str) -> list[tuple[int, int]]:
    """Positions of payment cards in a run of digits and separators, left to right, without overlap.

    A card begins and ends where a group of digits does: what else stands in the run (a date, a check code) does not
    hide it. Its groups are as on a card: a tenth of all numbers pass the check, and so would a tenth of all rows of
    small numbers. Networks begin with 2 to 6.
    """
    groups = _groups(text)
    items: list[tuple[int, int]] = []
    index = 0
    while index < len(groups):
        after = _card_from(text, groups, index)
        if after is None:
            index += 1
        else:
            items.append((groups[index][0], groups[after - 1][1]))
            index = after
    return items


def _card_from(text: str, groups: list[tuple[int, int]], first: int) -> int | None:
    """The index after the last group of a card that begins with this group; the longest one."""
    start = groups[first][0]
    if text[start] not in "23456" or text[max(0, start - 1) : start] == ".":
        return None  # after a point the digits are a fraction's
    digits, best = "", None
    for index in range(first, len(groups)):
        digits += text[groups[index][0] : groups[index][1]]
        if len(digits) > CARD_DIGITS[-1]:
            break
        if len(digits) in CARD_DIGITS and _as_on_a_card(text, groups[first : index + 1]) and luhn(digits):
            best = index + 1
    return best


def _as_on_a_card(text: str, groups: list[tuple[int, int]]) -> bool:
    sizes = tuple(stop - start for start, stop in groups)
    between = {text[stop] for _, stop in groups[:-1]}
    if between & {".", "/"} and (len(between) > 1 or len(sizes) < 3):
        return False  # decimal fractions, paths, and rows of them
    by_fours = all(size == 4 for size in sizes[:-1]) and sizes[-1] <= 4
    return len(sizes) == 1 or by_fours or sizes in _LAYOUTS


def _groups(text: str) -> list[tuple[int, int]]:
    groups, start = [], 0
    for index, character in enumerate(text + " "):
        if character in SEPARATORS:
            if index > start:
                groups.append((start, index))
            start = index + 1
    return groups


def iban_length(text: str) -> int | None:
    """How many characters of `text`, separators included, are an IBAN; None when it does not begin with one, or goes on
    without a separator, as a hash does."""
    wanted = IBAN_LENGTHS.get(text[:2].upper())
    if wanted is None:
        return None
    compact, stop = "", 0
    for index, character in enumerate(text):
        if character in "-./" and index % 5 != 4:
            return None  # hyphens and points stand between fours; those of a UUID and the end of a sentence do not
        if character not in SEPARATORS:
            compact += character.upper()
            stop = index + 1
        if len(compact) == wanted:
            break
    if len(compact) != wanted or text[stop : stop + 1].isalnum():
        return None
    return stop if int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1 else None
