"""Explanations of why a data log stays, why a consumer waits, and who holds memory."""
