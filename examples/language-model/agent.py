"""An agent that works by a language model, and what its people think of it: every answer is an episode.

It remembers what was asked before, may call one tool, and asks for a thumb afterwards. Any server with the Chat
Completions API will do.

    pip install ./crds ./agent_sdk
    kubectl port-forward -n learnloop-system service/learnloop-data 8081:8080 &
    kubectl get configmap learnloop-ca -o jsonpath='{.data.ca\\.crt}' > ca.crt
    kubectl create token default --audience learnloop > token
    export LEARNLOOP_TLS_CA=ca.crt LEARNLOOP_TOKEN_FILE=$PWD/token LEARNLOOP_DATA_URL=https://localhost:8081
    MODEL_URL=http://localhost:11434/v1 MODEL=llama3.2 python agent.py anna
"""

import argparse
import asyncio
import json
import os
import sys
from typing import Any

import httpx

from learnloop_sdk import Conversation, Learnloop

OPENING = {"monday": "9 to 18", "saturday": "10 to 14"}
TOOL = {
    "type": "function",
    "function": {
        "name": "opening_hours",
        "description": "When the shop is open.",
        "parameters": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
    },
}
MOST_TURNS = 6


def opening_hours(arguments: str) -> str:
    """The tool; what it cannot read it says, for the model to try again."""
    try:
        return OPENING.get(str(json.loads(arguments)["day"]).lower(), "closed")
    except (ValueError, KeyError, TypeError) as error:
        return f"error: {error!r}"


async def complete(model: httpx.AsyncClient, messages: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """The model's next message, and how many tokens it took."""
    body = {"model": os.environ.get("MODEL", "llama3.2"), "messages": messages, "tools": [TOOL]}
    answer = (await model.post("chat/completions", json=body)).raise_for_status().json()
    return answer["choices"][0]["message"], answer.get("usage")


async def reply_to(loop: Learnloop, model: httpx.AsyncClient, user: str, question: str) -> str:
    """Answers one question; returns the id that the user's opinion goes by."""
    revision = os.environ.get("MODEL", "llama3.2")
    async with loop.episode("support", external=True, revision=revision, metadata={"user_id": user}) as episode:
        memories = await episode.recall({"text": question})
        hints = [str(memory["content"].get("text", "")) for memory in memories.memories]
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You help customers of a shop. " + " ".join(hints)},
            {"role": "user", "content": question},
        ]
        conversation = Conversation(episode)
        for turn in range(MOST_TURNS):
            message, usage = await complete(model, messages)
            calls = message.get("tool_calls") or []
            last = turn + 1 == MOST_TURNS
            conversation.turn(messages, message, usage=usage, terminated=not calls, truncated=bool(calls) and last)
            messages.append(message)
            for call in calls:
                hours = opening_hours(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": hours})
            if not calls:
                break
        print(message.get("content"))
        episode.outcome(not calls)
        await loop.memory.store({"text": f"Asked: {question}"}, user_id=user, session_id=episode.episode_id)
        return episode.trajectory_id


async def main(agent: str, user: str) -> None:
    """A question on each line; after its answer a line with + or -, or an empty one."""
    address = os.environ.get("MODEL_URL", "http://localhost:11434/v1").rstrip("/") + "/"
    async with Learnloop(agent) as loop, httpx.AsyncClient(base_url=address, timeout=120) as model:
        while question := (await asyncio.to_thread(sys.stdin.readline)).strip():
            trajectory = await reply_to(loop, model, user, question)
            opinion = (await asyncio.to_thread(sys.stdin.readline)).strip()
            if opinion in ("+", "-"):
                await loop.people.feedback(trajectory, user, thumbs="up" if opinion == "+" else "down")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("user", help="who asks; the data plane keeps a pseudonym")
    parser.add_argument("--agent", default="shop-assistant", help="name of the LearningAgent")
    options = parser.parse_args()
    asyncio.run(main(options.agent, options.user))
