"""Does a RewardPolicy pay groups differently for the same result? Gaps between groups, and recorded episodes with the
group swapped."""
