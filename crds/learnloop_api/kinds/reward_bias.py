"""The bias check of a RewardPolicy: does it pay groups differently for the same result?"""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from learnloop_api.kinds.base import Resource
from learnloop_api.kinds.cel_rules import Rule, explained
from learnloop_api.kinds.reward_components import LARGEST_REWARD

GROUP_KEY = r"^(taskType|(result\.)?metadata\.[A-Za-z0-9_./-]{1,64})$"
PERSON = "metadata.user_id"
"""The label that names a person: people are no groups."""

GroupKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=80,
        pattern=GROUP_KEY,
        json_schema_extra=dict(
            explained("must be taskType, metadata.NAME (a label of the trajectory) or result.metadata.NAME")
        ),
    ),
]
Word = Annotated[str, Field(min_length=1, max_length=64)]


class GroupWords(Resource):
    """The words that name a group in a text."""

    group: Word = Field(description="Value of the grouping key, e.g. woman.")
    words: list[Word] = Field(
        min_length=1,
        max_length=32,
        description="Words that name it, e.g. she, her, Ms. Each takes the place of the other group's word in the same "
        "position, so all groups have as many, in the same order.",
    )


class BiasCheck(Resource):
    """Groups whose rewards are compared, how far they may differ, and whether a finding stops a revision."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!('{PERSON}' in self.groupBy)",
            "metadata.user_id names a person, and a person is no group: group by another label",
            ".groupBy",
        ),
        Rule(
            "size(self.swap) != 1 && self.swap.all(g, size(g.words) == size(self.swap[0].words))",
            "name two groups or more, each with as many words: they take one another's places",
            ".swap",
        ),
    )

    group_by: list[GroupKey] = Field(
        min_length=1,
        max_length=4,
        json_schema_extra={"listType": "set"},
        description="What makes a group: `metadata.NAME`, a label of the trajectory; `result.metadata.NAME`; or "
        "`taskType`. Of each key the 20 largest groups are compared.",
    )
    max_gap: float = Field(
        default=0.05,
        ge=0,
        le=LARGEST_REWARD,
        description="Mean rewards of two groups with the same outcome may differ by this much, before normalisation. "
        "The same holds for what each component adds.",
    )
    max_success_gap: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Success rates of two groups may differ by this much; left out, they are told and never suspected.",
    )
    max_move: float = Field(
        default=0.01,
        ge=0,
        le=LARGEST_REWARD,
        description="A reward may move by this much when the group in a recorded episode is swapped for another.",
    )
    confidence: float = Field(
        default=0.95,
        ge=0.5,
        le=0.9999,
        description="A gap is suspected when it is above its limit at this confidence, all comparisons together.",
    )
    minimum_episodes: int = Field(
        default=30, ge=10, le=10_000, description="Of one outcome, for a group to be compared at that outcome."
    )
    episodes: int = Field(default=5000, ge=100, le=20_000, description="The newest so many are looked at.")
    swap: list[GroupWords] = Field(
        default_factory=list,
        max_length=8,
        json_schema_extra={"listType": "map", "listMapKeys": ["group"]},
        description="Words that name a group in task, output, expected output, and observed and said texts. The value "
        "of the key itself is always one of them.",
    )
    block_publishing: bool = Field(
        default=False,
        description="true: a new revision is published only after the check found nothing. A history too short to tell "
        "does not block.",
    )

    @model_validator(mode="after")
    def _groups_fit_together(self) -> "BiasCheck":
        if PERSON in self.group_by:
            raise ValueError(f"groupBy: {PERSON} names a person, and a person is no group: group by another label")
        if len(set(self.group_by)) < len(self.group_by):
            raise ValueError("groupBy: a key is there twice; name each once")
        if len(self.swap) == 1 or len({len(one.words) for one in self.swap}) > 1:
            raise ValueError("swap: name two groups or more, each with as many words: they take one another's places")
        if len({one.group for one in self.swap}) < len(self.swap):
            raise ValueError("swap: a group is there twice; name each once")
        for one in self.swap:
            if len({word.casefold() for word in one.words}) < len(one.words):
                raise ValueError(
                    f"swap: group {one.group} has a word twice, and cannot say which other word it becomes"
                )
        return self
