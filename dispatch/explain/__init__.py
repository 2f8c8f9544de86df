"""Explanations: why a data log remains, why a consumer waits, who holds memory."""
