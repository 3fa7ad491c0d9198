"""Engine `sb3`: Stable-Baselines3 and sb3-contrib, as a program that keeps to the engine contract."""

import inspect
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sb3_contrib
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from learnloop_api.wire import engine as wire
from learnloop_environments import Conditions, make, randomness, spaces, user_environment
from learnloop_environments.errors import ConfigError, TrainerError
from learnloop_trainer.engines.engine_process import Exchange
from learnloop_trainer.engines.sb3_export import exported, normalisations
from learnloop_trainer.engines.sb3_spaces import MLP, form_of
from learnloop_trainer.store.run_store import MAX_CHECKPOINT, pack, unpack

ALGORITHMS: Mapping[str, type[BaseAlgorithm]] = {
    "ppo": sb3.PPO,
    "a2c": sb3.A2C,
    "sac": sb3.SAC,
    "td3": sb3.TD3,
    "ddpg": sb3.DDPG,
    "dqn": sb3.DQN,
    "qr-dqn": sb3_contrib.QRDQN,
    "tqc": sb3_contrib.TQC,
    "crossq": sb3_contrib.CrossQ,
    "trpo": sb3_contrib.TRPO,
    "ars": sb3_contrib.ARS,
    "recurrent-ppo": sb3_contrib.RecurrentPPO,
    "maskable-ppo": sb3_contrib.MaskablePPO,
}
OURS = [
    "self",
    "policy",
    "env",
    "seed",
    "device",
    "verbose",
    "tensorboard_log",
    "_init_setup_model",
    "stats_window_size",
]
"""Arguments that no settings set."""
MORE = ("policy", "n_envs", "normalize")
"""Settings beyond an algorithm's arguments: its networks, environments side by side, and VecNormalize."""
CHECKPOINT_SECONDS = 15.0
SETTINGS = "spec.settings"
NORMAL = "observations"
"""In a checkpoint: mean, variance and count of VecNormalize, for each part of a Dict."""
Step = tuple[Any, Any, Any, list[dict[str, Any]]]


class Environments(VecEnv):  # type: ignore[misc]
    """Environments of learnloop, by the same code that the proof plays, as Stable-Baselines3 wants them."""

    def __init__(self, order: wire.EngineOrder, count: int) -> None:
        self._inner = make(
            order.environment,
            randomness.Split.TRAINING,
            order.seed,
            range(count),
            Conditions(max_steps=order.max_steps_per_episode),
        )
        self.form = form_of(order.environment, order.algorithm, order.settings, self._inner)
        super().__init__(count, self.form.space, spaces.ActionSpace.of(self._inner).gymnasium())
        self._chosen: Any = None
        self._rows = np.zeros((count, self.form.width), np.float32)

    def reset(self) -> Any:
        self._rows = self._inner.reset()
        return self.form.take(self._rows)

    def step_async(self, actions: Any) -> None:
        self._chosen = actions

    def step_wait(self) -> Step:
        step = self._inner.step(self._chosen)
        ended = step.terminated | step.truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(ended):
            cut = bool(step.truncated[index] and not step.terminated[index])
            last = self.form.take(step.successor[index : index + 1])
            last = {name: part[0] for name, part in last.items()} if isinstance(last, dict) else last[0]
            infos[index] = {"terminal_observation": last, "TimeLimit.truncated": cut}
        self._rows = step.observation
        return self.form.take(self._rows), step.reward, ended, infos

    def close(self) -> None:
        self._inner.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """The one that sb3-contrib asks for: which choices each environment allows now."""
        if method_name != "action_masks" or self.form.mask is None:
            raise AttributeError(method_name)
        return list(self._rows[:, self.form.mask.at : self.form.mask.end] > 0.5)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Reports(BaseCallback):  # type: ignore[misc]
    """A heartbeat each second, and a checkpoint now and then."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange, self._beat, self._saved = exchange, 0.0, time.monotonic()

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now - self._beat >= 1.0:
            self._beat = now
            self.beat()
        if now - self._saved >= CHECKPOINT_SECONDS:
            self.save()
            self._saved = time.monotonic()
        return True

    def beat(self) -> None:
        returns = [float(episode["r"]) for episode in self.model.ep_info_buffer or ()]
        document = wire.EngineHeartbeat(step=self.model.num_timesteps, returns=returns[-200:])
        self._exchange.give(wire.HEARTBEAT, document.model_dump_json().encode())

    def save(self) -> None:
        """Networks, entropy coefficient and normalisation; moments of the optimisers and a replay buffer fill again."""
        tensors = {name: value.detach().cpu().numpy() for name, value in _tensors(self.model).items()}
        if (normal := self.model.get_vec_normalize_env()) is not None:
            for name, rms in normalisations(normal).items():
                tensors[NORMAL + name] = np.stack((rms.mean, rms.var, np.full_like(rms.mean, rms.count)))
        self._exchange.give(wire.CHECKPOINT, pack(tensors, {"step": str(self.model.num_timesteps)}))


def _tensors(model: BaseAlgorithm) -> dict[str, torch.Tensor]:
    """Tensors that training changes, by reference."""
    own = {
        name: getattr(model, name) for name in (*model._get_torch_save_params()[1], "weights") if hasattr(model, name)
    }
    return {**{f"policy.{name}": value for name, value in model.policy.state_dict().items()}, **own}


def _resume(model: BaseAlgorithm, saved: bytes) -> None:
    """Go on from a checkpoint. No pickle is read: it comes from storage."""
    arrays, facts = unpack(saved)
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(torch.from_numpy(arrays[name].copy()))
    model.num_timesteps = int(facts["step"])
    if hasattr(model, "learning_starts"):  # the replay buffer is empty
        model.learning_starts += model.num_timesteps
    normal = model.get_vec_normalize_env()
    for name, rms in ({} if normal is None else normalisations(normal)).items():
        mean, variance, counts = arrays[NORMAL + name]
        rms.mean, rms.var, rms.count = mean, variance, float(counts[0])


def train(order: wire.EngineOrder, exchange: Exchange) -> None:
    kind, settings = ALGORITHMS[order.algorithm], dict(order.settings)
    on_policy = issubclass(kind, OnPolicyAlgorithm)
    count, normal = settings.pop("n_envs", 1), settings.pop("normalize", False)
    settings.pop("policy", None)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1024:
        raise ConfigError(f"{SETTINGS}.n_envs", count, "is not a whole number from 1 to 1024", "correct it")
    taken = [name for name in inspect.signature(kind.__init__).parameters if name not in OURS]
    for name in sorted(set(settings) - set(taken)):
        problem = f"is not an argument of Stable-Baselines3's {kind.__name__}"
        raise ConfigError(f"{SETTINGS}.{name}", settings[name], problem, f"it takes {', '.join([*taken, *MORE])}")
    world = Environments(order, count)
    form, environments = world.form, VecMonitor(world)
    if normal:
        flat, gamma = form.network == MLP, settings.get("gamma", 0.99)
        keys, some = None if flat else form.numbers, flat or bool(form.numbers)
        environments = VecNormalize(environments, True, some, on_policy, gamma=gamma, norm_obs_keys=keys)
    torch.manual_seed(order.seed)
    try:
        network = form.network.replace("Policy", "LstmPolicy") if kind is sb3_contrib.RecurrentPPO else form.network
        model = kind(network, environments, seed=order.seed, device="auto", **settings)
    except (AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise ConfigError(SETTINGS, order.settings, f"are refused by {kind.__name__}: {text}", "correct them") from None
    reports = Reports(exchange)
    saved = exchange.take(wire.RESUME, MAX_CHECKPOINT)
    if saved is not None:
        _resume(model, saved)
    left = max(1, order.total_steps - model.num_timesteps)
    model.learn(left, callback=reports, reset_num_timesteps=saved is None)
    reports.beat()
    reports.save()
    policy, behaviour, witness = exported(model, order, form)
    exchange.give(wire.POLICY, policy)
    versions = {"stable-baselines3": sb3.__version__, "sb3-contrib": sb3_contrib.__version__}
    result = wire.EngineResult(step=model.num_timesteps, behaviour=behaviour, witness=witness, versions=versions)
    exchange.give(wire.RESULT, result.model_dump_json().encode())


def main() -> int:
    exchange = Exchange(Path(os.environ[wire.ENV_DIRECTORY]))
    order = exchange.read(wire.ORDER, wire.EngineOrder, 1 << 20)
    assert order is not None
    user_environment.use(os.environ)
    torch.set_num_threads(1)
    try:
        train(order, exchange)
    except TrainerError as error:
        exchange.give(wire.ERROR, str(error).encode())
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
