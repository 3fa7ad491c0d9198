"""Samplers play the environment next to the learner.

A sampler sends fragments: as many steps of its environments as the learner wants at a time, by one version of the
policy. The learner answers with the newest version. Steps of an older policy are corrected (ppo), replayed (dqn, sac),
or dropped where they are too old.
"""
