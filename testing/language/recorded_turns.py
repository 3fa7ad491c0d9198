"""Recorded turns and pairs of answers of the tiny world, made on the spot."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from learnloop_api.wire.language import LanguageTurn, Preference
from learnloop_api.wire.trajectory import Outcome, Trajectory
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.language.messages_to_tokens import Chat

AT = datetime(2026, 11, 1, tzinfo=UTC)


def recorded_turn(session: str, words: Any, reward: float, **changes: Any) -> LanguageTurn:
    """The first turn of a conversation: a prompt of the world and two tokens, which it was worth."""
    prompt = Chat(words, ToolLookup().tools).opening(ToolLookup().begin(0, 0, 0).opening)  # type: ignore[arg-type]
    given: dict[str, Any] = {
        "turn_id": f"{session}-0",
        "session": session,
        "position": 0,
        "prompt_ids": prompt,
        "sampled_ids": [7 + int(reward), words.eos_token_id],
        "log_probs": [-5.9, -5.9],
        "policy_revision": "aaaaaaaa",
        "reward": reward,
        "at": AT,
    }
    return LanguageTurn.model_validate(given | changes)


def turns(words: Any, tmp_path: Path, count: int = 8) -> str:
    """A recorded file of conversations of one turn, every second of which was worth 1."""
    lines = []
    for number in range(count):
        turn = recorded_turn(f"s{number}", words, float(number % 2))
        trajectory = Trajectory(
            trajectory_id=f"t{number}",
            episode_id=f"e{number}",
            agent="speaker",
            policy_revision="aaaaaaaa",
            task="look up",
            started_at=AT,
            ended_at=AT,
            steps=[turn.to_step().model_copy(update={"terminated": True})],
            outcome=Outcome(status="completed", episode_return=float(number % 2), success=bool(number % 2)),
        )
        lines.append(trajectory.model_dump_json())
    path = tmp_path / "turns.jsonl"
    path.write_text("\n".join(lines))
    return path.as_uri()


def _drawn(first: int, number: int, words: Any) -> dict[str, Any]:
    """An answer of its own to each pair."""
    sampled = [first, *[20 + number] * (1 + number % 2), words.eos_token_id]
    return {"sampled_ids": sampled, "log_probs": [-5.9] * len(sampled)}


def preferences(words: Any, tmp_path: Path, count: int = 6) -> str:
    """A recorded file of pairs of answers, of which people chose one."""
    lines = [
        Preference.model_validate(
            {
                "preference_id": f"p{number}",
                "agent": "speaker",
                "chosen": {"turns": [recorded_turn(f"a{number}", words, 1.0, **_drawn(8, number, words))]},
                "rejected": {"turns": [recorded_turn(f"b{number}", words, 0.0, **_drawn(7, number, words))]},
                "at": AT,
            }
        ).model_dump_json()
        for number in range(count)
    ]
    path = tmp_path / "preferences.jsonl"
    path.write_text("\n".join(lines))
    return path.as_uri()
