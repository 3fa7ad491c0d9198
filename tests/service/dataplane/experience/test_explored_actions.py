"""Every explored action can be read, and the audit chain names each episode's by a digest."""

from ..conftest import Api, eventually, trajectory


async def test_explored_actions_are_read_back_as_the_chain_names_them(api: Api) -> None:
    for number in range(3):
        sent = trajectory(f"x{number}", "cart")
        first = {"observation": [1.0], "action": [0.5, 1e22], "reward": 0.25, "exploration": True, "q_value": -1.5}
        sent["steps"] = [first, *sent["steps"]]
        await api.call("POST", "/api/v1/trajectories", 202, json=sent)

    async def pages() -> list[dict]:
        collected, before = [], {}
        while True:
            page = await api.call("GET", "/api/v1/agents/cart/exploration", params={"limit": 2} | before)
            collected += page["episodes"]
            if page["next"] is None:
                return collected
            before = {"before": page["next"]}

    async def stored() -> bool:
        return len(await pages()) == 3

    await eventually(stored)
    episodes = await pages()
    action = episodes[0]["actions"][0]
    assert (action["step"], action["reward"], action["q_value"], action["agent_id"]) == (0, 0.25, -1.5, "cart")
    assert action["exploration_flag"] is True

    async def logged() -> dict[str, str]:
        wanted = {"action": "exploration.logged", "subject": "agent/cart"}
        records = (await api.call("GET", "/api/v1/audit/records", params=wanted))["records"]
        return {name: collected for record in records for name, collected in record["detail"]["episodes"].items()}

    async def sealed() -> bool:
        return len(await logged()) == 3

    await eventually(sealed)
    assert await logged() == {episode["trajectory_id"]: episode["sha256"] for episode in episodes}
    assert (await api.call("GET", "/api/v1/audit/verify"))["problem"] is None
    other = await api.call("GET", "/api/v1/agents/cart/exploration", namespace="team-b")
    assert other == {"episodes": [], "next": None}
