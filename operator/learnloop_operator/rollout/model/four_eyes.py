"""Four eyes: who has written what is rolled out does not let it on.

The API server does not tell an operator who wrote a spec. As with decisions, an annotation carries the name, and the
chart's admission policy lets nobody write another's (docs/decisions/0011-verified-authors-of-decisions.md).
"""

from learnloop_api.names import ANNOTATION_AUTHOR
from learnloop_operator.rollout.model.order_annotations import OrderAnnotation
from learnloop_operator.rollout.model.snapshot import Snapshot

RAISING = ("approve", "promote", "skip")
"""What lets a canary on without evidence, or past a pause. Rolling back needs nobody else."""


def one_pair(snapshot: Snapshot, word: OrderAnnotation) -> str:
    """Why two people have not looked yet; "" when they have, or need not."""
    if not snapshot.defaults.four_eyes or word.verb not in RAISING:
        return ""
    author = snapshot.annotations.get(ANNOTATION_AUTHOR, "")
    if not author:
        return (
            f"approvals.fourEyes is on, and nobody has signed the spec: whoever wrote it sets {ANNOTATION_AUTHOR} to "
            "their name first"
        )
    if not word.by:
        return "approvals.fourEyes is on, and this names nobody: use kubectl learnloop, or end it with ' by NAME'"
    if word.by == author:
        return f"approvals.fourEyes is on, and {author} wrote this spec: somebody else lets it on"
    return ""
