"""Supervised fine-tuning: raise the likelihood of what was said in demonstrations.

    L = -sum w l,   w = 1 / (tokens of the demonstration x demonstrations of the update)

Only the assistant's own tokens are learned; what the user and the tools said is context. `totalSteps` counts
demonstrations, again and again; each pass takes them in another order.
"""

from collections.abc import Sequence

import torch

from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.language import losses
from learnloop_trainer.language.network import LanguageLearner, Round, Stepper, Sums, spread, token_weights
from learnloop_trainer.language.rows import Episode, batches

CURVES = ("loss", "entropy", "length")


def numbers(count: int, size: int, begin: int, seed: int) -> list[int]:
    """Numbers of a batch of `count` things that begins with the `begin`-th: pass after pass, each in its order."""
    members: list[int] = []
    while len(members) < size:
        epoch, offset = divmod(begin + len(members), count)
        order = generator(Purpose.SHUFFLE, seed, epoch).permutation(count)
        members += order[offset : offset + size - len(members)].tolist()
    return members


class Sft(LanguageLearner):
    _demonstrations: Sequence[Episode] | None = None

    def _fetched(self) -> Sequence[Episode]:
        if self._demonstrations is None:
            least = self.parameters.min_reward
            self._demonstrations = [
                episode
                for episode in self.setting.experience.every()
                if episode.sampled and (least is None or episode.reward >= least)
            ]
            if not self._demonstrations:
                fix = "record some, or lower spec.sft.minReward"
                raise ConfigError("spec.data", "", "has no demonstrations", fix)
        return self._demonstrations

    def iterate(self) -> Round:
        every, setting, size = self._fetched(), self.setting, self.parameters.batch_episodes
        chosen = numbers(len(every), size, self.step, setting.seed)
        share = setting.group.place.share(size)
        local = [every[number] for number in chosen[share.start : share.stop]]
        weights, sums = token_weights(local, float(size)), Sums()
        for batch in batches(local, range(len(local)), self.parameters.tokens_per_batch, self.network.device):
            scores = self.network.score(batch)
            loss = losses.negative_log_likelihood(scores.log_prob, spread(weights, batch.members, batch.episode))
            torch.autograd.backward(loss)
            sums.add("loss", -scores.log_prob.detach().sum(), len(scores.log_prob))
            sums.add("entropy", scores.entropy.detach().sum(), len(scores.log_prob))
            sums.add("length", len(scores.log_prob), len(batch.members))
        stepper = Stepper(self.parameters, setting)
        stepper.step(self.step)
        self.step += size
        return Round([], sums.means(setting.group, CURVES) | {"gradient_norm": stepper.norms[0]})
