"""Explanations: why a data log stays, why a consumer waits, who holds memory."""
