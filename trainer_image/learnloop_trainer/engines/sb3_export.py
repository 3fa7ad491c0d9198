"""Policies of Stable-Baselines3 as ONNX, with the normalisation that they were trained behind."""

import io
import warnings
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy

from learnloop_api.kinds.behaviour import GREEDY, SAMPLED, Behaviour
from learnloop_api.wire.engine import EngineOrder, Witness
from learnloop_common.acting.onnx_policy import MEMORY, NEXT
from learnloop_environments.errors import ConfigError
from learnloop_environments.spaces import MASKED, Observations
from learnloop_trainer.engines.sb3_spaces import Form
from learnloop_trainer.errors import ExportError

OPSET = 17
WITNESSES, MOST_NUMBERS = 1000, 100_000
"""Observations that witness, and numbers in all of them: result.json holds 4 MiB."""
ALIKE = 0.99
"""Share of actions that must be Stable-Baselines3's own: rounding decides where two are as good."""
VALUES = ("dqn", "qr-dqn")
SQUASHED_GAUSSIAN = ("sac", "tqc", "crossq")
Tensors = tuple[torch.Tensor, ...]


class Acting(torch.nn.Module):
    """From observations as they are seen to all that a policy server asks of a policy."""

    mean: torch.Tensor
    deviation: torch.Tensor
    normal: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, model: BaseAlgorithm, algorithm: str, form: Form, draws: bool) -> None:
        super().__init__()
        self._form = form
        self._policy: Any = model.policy
        self._algorithm, self._draws = algorithm, draws
        self._numbers = isinstance(model.action_space, Box)
        vectors = model.get_vec_normalize_env()
        mean, deviation, normal = np.zeros(form.width), np.ones(form.width), np.zeros(form.width)
        self._clip = np.inf if vectors is None else float(vectors.clip_obs)
        for name, rms in ({} if vectors is None else normalisations(vectors)).items():
            part = next((one for one in form.parts if one.name == name), None)
            at = slice(None) if part is None else slice(part.at, part.end)
            mean[at], deviation[at], normal[at] = rms.mean, np.sqrt(rms.var + vectors.epsilon), 1.0
        low, high = (getattr(model.action_space, end, np.zeros(1)) for end in ("low", "high"))
        buffers = {"mean": mean, "deviation": deviation, "normal": normal, "low": low, "high": high}
        for name, values in buffers.items():
            self.register_buffer(name, torch.as_tensor(np.asarray(values, dtype=np.float32)))

    @property
    def memory(self) -> int:
        """Numbers that it remembers: the actor's LSTM's states."""
        shape = getattr(self._policy, "lstm_hidden_state_shape", None)
        return 0 if shape is None else 2 * shape[0] * shape[2]

    def forward(self, observation: torch.Tensor, memory: torch.Tensor | None = None) -> Tensors:
        row = observation
        if np.isfinite(self._clip):
            normalised = torch.clamp((row - self.mean) / self.deviation, -self._clip, self._clip)
            row = torch.where(self.normal > 0, normalised, row)
        x: Any = self._form.split(row)
        remembered: Tensors = ()
        if memory is not None:
            x, remembered = self._remember(x, memory)
        if not self._numbers:
            logits = self._logits(x)
            if (mask := self._form.mask) is not None:
                logits = torch.where(observation[:, mask.at : mask.end] > 0.5, logits, float(MASKED))
            return logits.argmax(1), logits, *remembered
        numbers, more = self._numbers_of(x)
        return (torch.minimum(torch.maximum(numbers, self.low), self.high), *more, *remembered)

    def _remember(self, x: Any, memory: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
        """Output of the LSTM for one observation of each episode, and the memory for the next one."""
        policy, (layers, _, hidden) = self._policy, self._policy.lstm_hidden_state_shape
        features = ActorCriticPolicy.extract_features(policy, x, policy.pi_features_extractor)
        before = memory.reshape(-1, 2, layers, hidden).permute(1, 2, 0, 3)
        latent, after = policy.lstm_actor(features.unsqueeze(0), (before[0].contiguous(), before[1].contiguous()))
        return latent.squeeze(0), (torch.stack(after).permute(2, 0, 1, 3).reshape(-1, 2 * layers * hidden),)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        policy = self._policy
        if self._algorithm == "dqn":
            return torch.as_tensor(policy.q_net(x))
        if self._algorithm == "qr-dqn":
            return torch.as_tensor(policy.quantile_net(x).mean(1))
        return self._head(x)

    def _head(self, x: torch.Tensor) -> torch.Tensor:
        policy = self._policy
        if self._algorithm == "recurrent-ppo":
            return torch.as_tensor(policy.action_net(policy.mlp_extractor.forward_actor(x)))
        if self._algorithm == "ars":
            return torch.as_tensor(policy.action_net(policy.extract_features(x, policy.features_extractor)))
        features = policy.extract_features(x, policy.pi_features_extractor)
        return torch.as_tensor(policy.action_net(policy.mlp_extractor.forward_actor(features)))

    def _numbers_of(self, x: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
        policy = self._policy
        if self._algorithm in SQUASHED_GAUSSIAN:
            mean, log_deviation, _ = policy.actor.get_action_dist_params(x)
            more = (mean, log_deviation.exp()) if self._draws else ()
            return self._placed(torch.tanh(mean)), more
        if self._algorithm in ("td3", "ddpg"):
            return self._placed(policy.actor(x)), ()
        numbers = self._head(x)
        return (self._placed(numbers) if policy.squash_output else numbers), ()

    def _placed(self, squashed: torch.Tensor) -> torch.Tensor:
        return self.low + 0.5 * (squashed + 1.0) * (self.high - self.low)


def behaviour_of(order: EngineOrder, *, numbers: bool) -> Behaviour:
    """The order's, else greedy for numbers and values, and sampled for logits. Raises ConfigError."""
    able = order.algorithm in SQUASHED_GAUSSIAN if numbers else order.algorithm not in (*VALUES, "ars")
    wanted = order.behaviour
    if wanted is None:
        return SAMPLED if able and not numbers else GREEDY
    unfit = wanted.kind == "sampled" and not able and (numbers or wanted.temperature is None)
    if unfit or (numbers and wanted.kind == "epsilon-greedy"):
        problem = f"is not how {order.algorithm} of engine sb3 can act here"
        raise ConfigError("spec.export.behaviour.kind", wanted.kind, problem, "set it to greedy, or leave it out")
    return wanted


def normalisations(normal: Any) -> dict[str, Any]:
    """Running means and variances of VecNormalize: "" for rows, else by the part of a Dict."""
    rms = getattr(normal, "obs_rms", None)  # absent where it normalises rewards alone
    return rms if isinstance(rms, dict) else {} if rms is None else {"": rms}


def exported(model: BaseAlgorithm, order: EngineOrder, form: Form) -> tuple[bytes, Behaviour, Witness]:
    """The policy, how it acts, and outputs of the network for observations around those that it was trained on.

    Those of a policy that remembers are one episode.
    """
    numbers = isinstance(model.action_space, Box)
    behaviour = behaviour_of(order, numbers=numbers)
    draws = numbers and behaviour.kind == "sampled"
    model.policy.set_training_mode(False)
    acting = Acting(model, order.algorithm, form, draws).cpu().eval()
    outputs = ["action", *([] if numbers else ["logits"]), *(["mean", "deviation"] if draws else [])]
    count = max(2, min(WITNESSES, MOST_NUMBERS // (form.width + (order.actions or 1))))
    around = form.around(acting.mean.numpy(), acting.deviation.numpy(), count, order.seed)
    with torch.no_grad():
        policy, rows = _graph(acting, outputs, around), torch.from_numpy(around)
        results = _episode(acting, rows) if acting.memory else acting(rows)
    action, *more = (output.numpy() for output in results)
    if float(np.isclose(action, _predicted(model, form, around), rtol=1e-3, atol=1e-3).mean()) < ALIKE:
        raise ExportError(f"{order.algorithm} of engine sb3 was exported otherwise than it acts; please report this")
    result = action if numbers else more[0]
    return policy, behaviour, Witness(observations=around.tolist(), outputs=result.tolist())


def _graph(acting: Acting, outputs: list[str], around: Observations) -> bytes:
    example, inputs = [torch.from_numpy(around[:2])], ["observation"]
    if acting.memory:
        example.append(torch.zeros((2, acting.memory)))
        inputs, outputs = [*inputs, MEMORY], [*outputs, NEXT]
    file: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            acting,
            tuple(example),
            file,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in (*inputs, *outputs)},
            opset_version=OPSET,
            dynamo=False,
        )
    return bytes(file.getvalue())


def _episode(acting: Acting, rows: torch.Tensor) -> list[torch.Tensor]:
    """Outputs for one observation after the other."""
    memory, results = torch.zeros((1, acting.memory)), []
    for row in rows:
        *outputs, memory = acting(row[None], memory)
        results.append(outputs)
    return [torch.cat(column) for column in zip(*results, strict=True)]


def _predicted(model: BaseAlgorithm, form: Form, around: Observations) -> NDArray[Any]:
    """Actions by Stable-Baselines3's own code."""
    normal = model.get_vec_normalize_env()
    given = form.take(around) if normal is None else normal.normalize_obs(form.take(around))
    more: dict[str, Any] = {"deterministic": True}
    if form.mask is not None:
        more["action_masks"] = around[:, form.mask.at : form.mask.end] > 0.5
    if not hasattr(model.policy, "lstm_actor"):
        return np.asarray(model.predict(given, **more)[0])
    actions, state = [], None
    for number in range(len(around)):
        one = {name: part[[number]] for name, part in given.items()} if isinstance(given, dict) else given[[number]]
        action, state = model.predict(one, state, np.array([number == 0]), **more)
        actions.append(action[0])
    return np.asarray(actions)
