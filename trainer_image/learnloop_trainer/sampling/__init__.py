"""Samplers play the environment beside the learner: what travels between them, and what each side makes of it.

A sampler sends fragments: as many steps of its environments as the learner wants at a time, taken with one version of
the policy. The learner sends the newest version back. Steps of an older policy are corrected (ppo), replayed (dqn and
sac), or dropped where they are too old.
"""
