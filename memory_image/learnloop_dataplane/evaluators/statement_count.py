"""Counts the statements of the Python code on standard input, as `python -m …statement_count`.

It runs in a process of its own, because parsing may take any time and memory. Docstrings, `...` and `pass` do not
count: they do nothing, so a finding cannot be in them.
"""

import ast
import sys


def main() -> None:
    """Prints the number; 0 for what is not Python."""
    try:
        tree = ast.parse(sys.stdin.buffer.read())
    except (SyntaxError, ValueError, RecursionError):
        print(0)
        return
    print(sum(isinstance(node, ast.stmt) and not _does_nothing(node) for node in ast.walk(tree)))


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant | ast.JoinedStr)
    return isinstance(statement, ast.Pass)


if __name__ == "__main__":
    main()
