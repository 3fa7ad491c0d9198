"""The page of reasons: the words of conditions and Kubernetes events, from where the operator's decisions name them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from reference.markdown import code, page, table

OPERATOR = Path(__file__).resolve().parents[2] / "operator" / "learnloop_operator"
_KINDS = {
    "agents": "LearningAgent",
    "training": "TrainingJob",
    "memory_services": "MemoryService",
    "reward_revisions.py": "RewardPolicy",
}


def pages() -> Iterator[tuple[str, str]]:
    """The one page of reasons."""
    rollout = table(("reason", "meaning"), [(code(reason), meaning) for reason, meaning in _documented()])
    parts = [
        "Every event and every condition of the operator bears one of these words, and a sentence with the numbers.",
        "## ModelDeployment",
        rollout,
        "## Other kinds",
        table(("kind", "reason", "type", "sentence"), sorted(set(_notices()))),
    ]
    yield "reasons.md", page("Reasons of conditions and events", "`operator/learnloop_operator`", *parts)


def _documented() -> Iterator[tuple[str, str]]:
    """Each constant of the rollout's reasons with the docstring below it. Raises ValueError where one has none."""
    body = ast.parse((OPERATOR / "rollout" / "reasons.py").read_text()).body
    for index, node in enumerate(body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            after = body[index + 1] if index + 1 < len(body) else None
            if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
                raise ValueError(f"{ast.unparse(node)} in rollout/reasons.py has no docstring below it")
            yield str(node.value.value), str(after.value.value)


def _notices() -> Iterator[tuple[str, str, str, str]]:
    """Kind, reason, type and sentence of each Notice whose reason is a literal or a constant of its module."""
    for path in sorted(OPERATOR.rglob("*.py")):
        kind = _KINDS.get(path.relative_to(OPERATOR).parts[0])
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree) if kind else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Notice":
                type_, reason, sentence = node.args
                word = reason.value if isinstance(reason, ast.Constant) else constants.get(ast.unparse(reason))
                if word and isinstance(type_, ast.Constant):
                    yield str(kind), code(word), str(type_.value), code(_shown(sentence))


def _shown(sentence: ast.expr) -> str:
    """The sentence with its gaps in braces; nothing where it is made elsewhere."""
    if isinstance(sentence, ast.Constant):
        return str(sentence.value)
    if not isinstance(sentence, ast.JoinedStr):
        return ""
    parts = sentence.values
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in parts)
