"""`python -m learnloop_dataplane.evaluators.statement_count`: how many statements the Python on its input has.

A process of its own, as the code may take any time and memory to read. It is parsed and never run. Constants that stand
alone (documentation, `...`) and `pass` are none: they do nothing, so they are no place where a finding could have been.
"""

import ast
import sys


def main() -> None:
    """Prints the number; 0 for what is no Python."""
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
