import './base.css';
import './sidebar.css';
import './views.css';
