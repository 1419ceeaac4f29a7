"""The loop: propose, one target pass, judge, keep."""
