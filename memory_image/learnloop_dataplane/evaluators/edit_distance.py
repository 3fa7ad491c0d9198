"""Edit distance of two texts by bits: one step of whole-number arithmetic for each character of one of them.

Source: G. Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic programming", J. ACM
46(3), 1999, in the form of H. Hyyrö, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances",
Nordic Journal of Computing 10, 2003.
"""


def edit_distance(one: str, other: str) -> int:
    """Fewest insertions, deletions and replacements of a character that make one text the other."""
    if not one or not other:
        return len(one) + len(other)
    places: dict[str, int] = {}
    for index, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << index
    whole, last, distance = (1 << len(one)) - 1, 1 << (len(one) - 1), len(one)
    up, down = whole, 0  # where the column rises, and falls, from one row to the next
    for character in other:
        equal = places.get(character, 0)
        diagonal = equal | down
        across = (((equal & up) + up) ^ up) | equal
        rises, falls = (down | ~(across | up)) & whole, up & across
        distance += bool(rises & last) - bool(falls & last)
        rises, falls = (rises << 1 | 1) & whole, (falls << 1) & whole
        up, down = falls | (~(diagonal | rises) & whole), rises & diagonal
    return distance
