"""The load test, `forebay bench`: a broker process is killed and recovered, and every message accounted for.

Named scenarios or a user's own messages go through a store under one memory limit. The supervising process keeps the
evidence, because the broker that is killed cannot.
"""
