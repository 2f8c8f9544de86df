"""The same objects for asyncio."""
