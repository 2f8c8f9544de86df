"""JMS SQL-92 selectors: `selector.py` parses the text, `conditions.py` has the compiled conditions."""
