"""The process in which judged code runs: it reads code and calls, and writes a result for each call.

Started by `limited_run` with nothing of its environment. Whatever happens here is the judged code's: it may end, hang,
or write what it likes. It knows no test, only what it is asked.
"""

import asyncio
import inspect
import json
import os
import resource
import sys
import types

NAME = "solution"
PROCESSES, FILES, WRITTEN_BYTES = 16, 64, 2**20


def main() -> None:
    """Arguments: seconds, bytes of memory, the user to become or 0. Input: the code, and the calls to make."""
    seconds, memory, user = map(int, sys.argv[1:4])
    code, calls = json.load(sys.stdin)
    answers = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # printed text is not a result
        os.dup2(null, descriptor)
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    _limit(seconds, memory)
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    try:
        exec(compile(code, f"{NAME}.py", "exec"), module.__dict__)
    except BaseException as error:  # SystemExit, too
        for place in range(len(calls)):
            _write(answers, place, _raised(error))
        return
    for place, (name, args, named) in enumerate(calls):
        _write(answers, place, _called(module, name, args, named))


def _limit(seconds: int, memory: int) -> None:
    limits = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_NPROC: PROCESSES,
        resource.RLIMIT_NOFILE: FILES,
        resource.RLIMIT_FSIZE: WRITTEN_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


def _called(module: types.ModuleType, name: str, args: list[object], named: dict[str, object]) -> str:
    try:
        value = getattr(module, name)(*args, **named)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        return json.dumps({"returned": value}, allow_nan=False)
    except BaseException as error:
        return _raised(error)


def _raised(error: BaseException) -> str:
    return json.dumps({"raised": type(error).__name__, "text": " ".join(str(error).split())[:200]})


def _write(answers: int, place: int, result: str) -> None:
    os.write(answers, f"[{place}, {result}]\n".encode(errors="replace"))


if __name__ == "__main__":
    main()
