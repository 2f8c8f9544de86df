"""JMS SQL-92 selectors, compiled to closures."""
