//! Shows a store in a browser: runs, comparisons, trends and what is being measured now.
