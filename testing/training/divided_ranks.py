"""Two ranks of a language model's training in processes of their own, for tests of weights that are divided."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from learnloop_trainer.distributed.rendezvous import meet
from learnloop_trainer.distributed.torch_group import Peers
from learnloop_trainer.store.directory import DirectoryStore
from learnloop_trainer.training_order import Place, read_order
from learnloop_trainer.training_run.language_beginning import LanguageTraining, begin_language
from learnloop_trainer.training_run.language_session import restore, save
from testing.training.training_ranks import process

CPU = torch.device("cpu")
Begin = Callable[[], LanguageTraining]


def resumed(document: dict[str, Any], folder: Path, port: int) -> list[dict[str, str]]:
    """What each rank says of four rounds at a stretch, and of two, a checkpoint and two more."""
    return _together(_resumed, document, folder, port)


def parameter_bytes(document: dict[str, Any], folder: Path, port: int) -> list[dict[str, float]]:
    """Of each rank: bytes of the model, and the most that its parameters took while it sampled and learned."""
    return _together(_parameter_bytes, document, folder, port)


def _together(work: Callable[..., dict[str, Any]], document: dict[str, Any], folder: Path, port: int) -> list[Any]:
    ranks = [process(_life, work, json.dumps(document), str(folder), rank, port) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for number, rank in enumerate(ranks):
        rank.join(240)
        assert rank.exitcode == 0, f"rank {number} ended with {rank.exitcode}"
    return [json.loads((folder / f"said-{rank}.json").read_text()) for rank in range(2)]


def _life(work: Callable[..., dict[str, Any]], document: str, folder: str, rank: int, port: int) -> None:
    torch.set_num_threads(1)
    place = Place(rank, 2, port=port)
    meeting = meet(place, lambda _: None)
    group = Peers(meeting, CPU)
    order = read_order({"LEARNLOOP_TRAINING_SPEC": document})
    store = DirectoryStore(Path(folder) / "store", order.job)
    said = work(order, group, lambda: begin_language(order, group, CPU, store))
    (Path(folder) / f"said-{rank}.json").write_text(json.dumps(said))
    if rank == 0:
        meeting.announce()
    else:
        meeting.await_finish(lambda: None)
    group.close()
    os._exit(0)


def _resumed(order: Any, group: Peers, begin: Begin) -> dict[str, Any]:
    whole = begin()
    for _ in range(4):
        whole.learner.iterate()
    first = begin()
    for _ in range(2):
        first.learner.iterate()
    body = group.broadcast(save(first, order, group))
    again = begin()
    note = restore(again, order, body)
    for _ in range(2):
        again.learner.iterate()
    return {"note": note, "whole": whole.learner.network.digest(), "again": again.learner.network.digest()}


def _parameter_bytes(order: Any, group: Peers, begin: Begin) -> dict[str, Any]:
    del order, group
    training = begin()
    model, seen = training.learner.network.model, [0]
    whole = sum(part.numel() * part.element_size() for part in model.parameters())

    def look(*_: Any) -> None:
        seen.append(sum({where: size for where, size in map(_storage, model.parameters())}.values()))

    for block in model.model.layers:
        block.register_forward_pre_hook(look)  # after FSDP's own, which brings the block's weights together
        block.register_full_backward_pre_hook(look)
    training.learner.iterate()
    return {"whole": whole, "most": max(seen), "looks": len(seen) - 1}


def _storage(part: Any) -> tuple[int, int]:
    """Where a parameter lies, and bytes there; several may lie in one place."""
    own = (part.to_local() if hasattr(part, "to_local") else part).untyped_storage()
    return own.data_ptr(), own.nbytes()
