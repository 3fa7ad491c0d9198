"""Gates: what a suite's report proves of a candidate. Pure: counts in, a bound and a sentence out."""
