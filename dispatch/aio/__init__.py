"""The public objects for asyncio."""
