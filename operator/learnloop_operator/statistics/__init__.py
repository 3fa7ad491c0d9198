"""Always-valid comparison of two arms that serve at the same time: look as often as you like, stop when you like.

Pure functions over counts. `e_values` says what one batch is worth and gives confidence sequences for a single arm.
`canary_against_stable` and `several_arms` keep the evidence that grows over a rollout. `alarm` watches one share, and
`latency` turns a histogram into counts. `fixed_sample_bounds` is for gates, which look once.

Sources:
- Turner, Ly, Grünwald: Generic E-variables for exact sequential k-sample tests that allow for optional stopping,
  arXiv 2106.02693; Turner, Grünwald: Exact anytime-valid confidence intervals for contingency tables and beyond,
  arXiv 2203.09785: the e-value of a block with any number of outcomes in each arm.
- Waudby-Smith, Ramdas: Estimating means of bounded random variables by betting, arXiv 2010.09686; Shekhar, Ramdas:
  Nonparametric two-sample testing by betting, arXiv 2112.09162: bounded values, predictable plug-in bets.
- Ville's inequality: an e-process exceeds 1/alpha at any time with probability at most alpha.
"""
